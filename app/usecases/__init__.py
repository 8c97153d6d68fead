"""What Subgrant does: one verb a file, one async function each, ports through the `World`."""
