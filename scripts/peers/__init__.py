"""llama-server beside localspec: the same files, prompts, sampling and clock, taking turns on one machine.

modes.py       the ways in which llama-server is run
options.py     the command line
binary.py      which llama-server it is
server.py      one llama-server process, from its start to its certain end
completion.py  one reply from it over HTTP
reply.py       a reply as the client saw it arrive: the one clock for all
contenders.py  everything that can be asked for a reply
turns.py       who answers what, and when
comparison.py  ratios of speeds, from the same repetition
report.py      tables for people
"""
