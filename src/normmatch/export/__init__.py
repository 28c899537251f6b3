"""The network as files that other programs run: ONNX, or torch.export's pt2."""
