// Package footprint gives back the memory that the start of the core needed and its work does not.
//
// It owns nothing, watches nothing and publishes nothing.
package footprint
