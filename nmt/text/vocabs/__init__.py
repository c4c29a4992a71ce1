"""Vocabularies: text to ids and ids to text; ``loading`` reads each kind from its file."""
