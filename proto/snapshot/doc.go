// Package snapshot is the format of the file that holds a snapshot of a cluster's consensus store.
//
// The file begins with three lines of text, so that what it holds can be told without a key:
//
//	reeve snapshot 1
//	{"cluster_id":"…","revision":4711,…}
//	{"certificate":"…","signature":"…"}
//
// The first line has the number of the format. The second is the Manifest. The third is the signature of the first two by the cluster's CA, with the CA's certificate: age
// seals a file to a key that is public, so without a signature anybody could make a file that the owner's recovery key opens. The payload follows: the database, then the
// SHA-256 of the database, as etcd's own snapshots end (etcdutl reads what was decrypted and decompressed), compressed by Zstandard, and sealed by age if the manifest names a
// recipient. The manifest has the size and the hash of the payload, so a signature holds for the whole file, and the file is checked without the key too.
//
// The package neither compresses nor encrypts: only who makes a snapshot and who opens one need the libraries for that.
package snapshot
