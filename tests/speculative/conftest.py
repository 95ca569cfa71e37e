from hypothesis import settings

# The same examples in every run, and no time limit per example: the machine may be busy.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")
