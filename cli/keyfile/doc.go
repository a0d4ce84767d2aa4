// Package keyfile makes and reads the files in which people keep their keys: an Ed25519 private key, PKCS #8 in PEM. It owns nothing; its errors are
// fault.Errors, and none of them quotes what is in a file.
package keyfile
