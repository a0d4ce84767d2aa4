// Package bundle writes a support bundle: one archive with what somebody needs to help, and without secrets.
//
// A bundle is a gzipped tar of one directory, reeve-bundle, with the files in the order of their names and one time for all of them, so that the same content
// makes the same bytes. bundle.json in it says what is there, and what is missing. Every text passes a Redactor on its way in. Nothing of the
// session or of an owner key is ever read: the package only knows what its entries bring.
//
// The package owns the file while it is written; it appears complete, in one step, and only its owner can read it.
package bundle
