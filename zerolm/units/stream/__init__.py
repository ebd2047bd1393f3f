"""The width of the residual stream: one basis for all layers, whose first directions a child keeps."""
