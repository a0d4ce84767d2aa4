package store

import clientv3 "go.etcd.io/etcd/client/v3"

// ClientOf is for tests that put a second curator on the same store.
func ClientOf(s *Store) *clientv3.Client { return s.client }

// GiveUpTurns has changes wait for no turn that is not free.
func GiveUpTurns(s *Store) { s.turnWithin = 0 }

// Decode is for the fuzz target.
var Decode = decode

// Encode is for the fuzz target.
var Encode = encode

// AuditEntry is for the fuzz target.
var AuditEntry = auditEntry
