// Package reference makes the reference of the protocols and of the SDK, in docs/reference, out of the comments in their sources, and holds that what is there is that. It has no
// code of its own. `make reference` writes it anew.
package reference
