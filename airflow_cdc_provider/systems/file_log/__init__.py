"""A log of files and the manifests that name them: what change logs and tables in a lake share."""
