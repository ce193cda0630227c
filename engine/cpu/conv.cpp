// The plan of a convolution.
