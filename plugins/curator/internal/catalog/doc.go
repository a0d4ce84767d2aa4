// Package catalog says what becomes of a plugin's record: when a version is added, approved, granted other things. It is pure: it is given a record and
// returns another one, owns, watches and publishes nothing, and leaves what it was given as it was. Whether the record that comes of it may stand beside
// the others is for internal/rules.
//
// A version runs if the owner has decided on all that it asks for; otherwise it waits, and the one before it runs on. When a version takes the place of
// another one, that one becomes the previous version, to which nodes go back; what is granted is cut to what the new one asks for; and what it asks for
// counts as decided on, granted or not. So a grant that was withheld is not asked for again with every version, and one that a version did without has to
// be approved again.
package catalog
