"""Results and figures: made from the files under ``results/`` alone, without PyTorch."""
