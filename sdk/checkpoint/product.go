//go:build !failpoints

package checkpoint

// Use says which steps there are, and which directory is the role's own.
func Use(string, []Step) {}

// At takes a point: Before and After do.
func At(Step) {}
