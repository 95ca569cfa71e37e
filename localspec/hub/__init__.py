"""Getting files: the only importer of huggingface_hub. `client.Hub` is what the rest of localspec uses."""
