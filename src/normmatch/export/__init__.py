"""The network as ONNX files that other programs run."""
