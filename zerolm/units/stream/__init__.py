"""The width of the residual stream: one basis for all layers, of which a child keeps the first part."""
