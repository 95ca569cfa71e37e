"""What a model is, from its file's header: no network, no native code, no weights in memory."""
