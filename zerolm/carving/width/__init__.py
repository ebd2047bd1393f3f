"""The width of the residual stream: one basis for the whole network, of which a child keeps the first part."""
