// Package rmtree removes directories that roles could write in.
//
// os.RemoveAll holds a file descriptor open for every level and so cannot remove a tree that is deep enough, which a role makes in a
// second. This package never goes deeper than two levels: directories that are further down are renamed up to the top of the tree first. It
// holds a handful of file descriptors and a few pages of names, whatever the tree looks like; follows no symbolic link; crosses no mount, be it one
// of the same file system; and puts right the modes that keep the owner of a directory out of it.
//
// It is safe against a process that changes the tree meanwhile: every step is taken relative to a directory that is held open, below
// which only what can be reached by the directory's own entries is removed. Such a process can at most keep it busy, for Patience.
//
// It owns, watches and publishes nothing.
package rmtree
