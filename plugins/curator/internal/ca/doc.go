// Package ca is the cluster CA: it makes the root of a new cluster, and issues the X.509-SVIDs of nodes and of curators
// and the certificates of sessions.
//
// It owns no stored state: the key and the certificate come from the records of internal/store. It watches nothing; Serving publishes the
// certificate of this curator through tls.Config.GetCertificate.
//
// Keys of the CA are ECDSA P-256, which every TLS library verifies; keys of nodes are Ed25519, which are what the cluster pins.
package ca
