"""The text of a study file to a typed tree with positions, to a StudySpec, and back."""
