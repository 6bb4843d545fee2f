"""A room of 0.1 that moved; importing it says where to. It goes in 0.3."""

raise ImportError(
    "tokenselect.pretrained moved: load_model, save_model, save_pretrained and push_to_hub are at "
    "the top level of tokenselect; load_model(folder or repository) and save_pretrained(model, "
    "folder) replace PretrainedModel"
)
