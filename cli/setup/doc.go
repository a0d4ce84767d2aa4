// Package setup makes what a node needs before its reeved starts for the first time: the document with its parameters, its directories, and
// the key of the owner if there is none yet. Nothing that is there already is ever changed.
//
// It owns the files while it makes them and nothing afterwards; it watches nothing.
package setup
