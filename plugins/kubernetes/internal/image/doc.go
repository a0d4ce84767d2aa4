// Package image makes the images of containers that no registry is needed for: the pause image, which is built in, and a program as an image.
//
// An image is written as an archive that `ctr images import` takes (an OCI image layout with one layer). The same image is the same bytes, whenever and wherever it is written: nothing in it has a
// time, and the layer is not compressed.
//
// The package owns nothing, watches nothing and publishes nothing.
package image
