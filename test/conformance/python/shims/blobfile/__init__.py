"""Files of this machine, for a cookbook that could read them from a store too."""

BlobFile = open
