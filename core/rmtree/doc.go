// Package rmtree removes directories that roles could write to.
//
// os.RemoveAll holds a descriptor for every level, so it cannot remove a very deep tree, which a role makes in a second. This package never goes
// deeper than two levels: it first renames deeper directories up to the top of the tree. It holds a handful of descriptors and a few pages of names
// whatever the tree looks like, follows no symbolic link, crosses no mount, not even one of the same file system, and fixes modes that lock out a
// directory's owner.
//
// It is safe against a process that changes the tree meanwhile: every step is relative to an open directory, and removes only what that directory's
// own entries lead to. Such a process can at most keep it busy for Patience.
//
// The package owns, watches and publishes nothing.
package rmtree
