package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// AuthorityChange is a step of the rotation of the cluster CA.
type AuthorityChange struct {
	CA *curatorv1.CertificateAuthority
	// Signing is the key of the first certificate, if that is another one than before.
	Signing *curatorv1.SigningKey
	// Next is the key of the certificate that is prepared; nil: none is, and a key that was kept goes.
	Next *curatorv1.SigningKey
}

func (a *AuthorityChange) write(writes *transaction) {
	if a == nil {
		return
	}
	writes.put(keyCertificates, a.CA)
	if a.Signing != nil {
		writes.put(keySigningKey, a.Signing)
	}
	if a.Next != nil {
		writes.put(keyNextKey, a.Next)
	} else {
		writes.delete(keyNextKey)
	}
}

// ReadNextKey reads the private key, PKCS #8, of the cluster CA that is prepared; nil if there is none.
func (s *Store) ReadNextKey(ctx context.Context) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	got, err := s.client.Get(bounded, keyNextKey)
	if err != nil {
		return nil, s.failed(ctx, "read the key of the next cluster CA", err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	record := new(curatorv1.SigningKey)
	if err := proto.Unmarshal(got.Kvs[0].Value, record); err != nil {
		// What is wrong with a key is not told: it could say what is in it.
		return nil, &RecordError{Key: keyNextKey, Err: errors.New("it cannot be read")}
	}
	return record.GetPrivateKey(), nil
}

// Issued is a certificate that was issued and is in use.
type Issued struct {
	// Node is whose it is, and Role the role's on it; empty: it is the node's own. Curator is set for what a curator serves with.
	Node, Role string
	Curator    bool
	// Certificate is DER.
	Certificate []byte
}

func (i Issued) key() string {
	switch {
	case i.Role == "":
		return prefixIssued + "node/" + i.Node
	case i.Curator:
		return prefixIssued + "curator/" + i.Node + "/" + i.Role
	}
	return prefixIssued + "role/" + i.Node + "/" + i.Role
}

// issuedAt returns whose certificate lies at a key.
func issuedAt(key string) (issued Issued, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, prefixIssued), "/")
	switch {
	case len(parts) == 2 && parts[0] == "node":
		return Issued{Node: parts[1]}, true
	case len(parts) == 3 && (parts[0] == "role" || parts[0] == "curator"):
		return Issued{Node: parts[1], Role: parts[2], Curator: parts[0] == "curator"}, true
	}
	return Issued{}, false
}

// NoteIssued keeps a certificate for as long as it lives, in the place of the one that was issued before to the same role or node. It goes by a lease, one for
// each, so that there are never more of them than nodes and roles. It reports whether there was one that lives, which this one renews.
func (s *Store) NoteIssued(ctx context.Context, issued Issued, lifetime time.Duration) (renewed bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	// Only a certificate that is issued to the same one at the same time can be in the way.
	renewed, err = backoff.Retry(bounded, func() (bool, error) {
		renewed, err := s.noteIssued(bounded, issued, lifetime)
		if err != nil && !errors.Is(err, ErrConflict) {
			err = backoff.Permanent(err)
		}
		return renewed, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxTries(tries))
	if err == nil || errors.Is(err, ErrConflict) {
		return renewed, err
	}
	return renewed, s.failed(ctx, "take note of a certificate", err)
}

func (s *Store) noteIssued(ctx context.Context, issued Issued, lifetime time.Duration) (renewed bool, err error) {
	key := issued.key()
	value, err := encode(&curatorv1.IssuedCertificate{Certificate: issued.Certificate})
	if err != nil {
		return false, err
	}
	got, err := s.client.Get(ctx, key) // with its value: of keys alone etcd does not say by which lease they go
	if err != nil {
		return false, err
	}
	var seen int64
	var before clientv3.LeaseID
	if len(got.Kvs) > 0 {
		seen, before = got.Kvs[0].ModRevision, clientv3.LeaseID(got.Kvs[0].Lease)
	}
	granted, err := s.client.Grant(ctx, max(1, int64(lifetime/time.Second)))
	if err != nil {
		return false, err
	}
	// Nobody else knows of the lease: it is used or taken back, also if who asked for the certificate has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.answerWithin)
	defer cancel()
	checkpoint.Before(steps.NoteIssued)
	put, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", seen)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(granted.ID))).Commit()
	checkpoint.After(steps.NoteIssued)
	if err == nil && !put.Succeeded {
		err = ErrConflict
	}
	if err != nil {
		return false, errors.Join(err, s.revoke(ctx, granted.ID))
	}
	// The lease of the one before has no key any more.
	return before != 0, s.revoke(ctx, before)
}

// revoke takes a lease back. One that is gone by now is none to take back.
func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	if lease == clientv3.NoLease {
		return nil
	}
	if _, err := s.client.Revoke(ctx, lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	return nil
}

// ListIssued returns the certificates that were issued and are in use, in no order that means anything. One that cannot be read is left out.
func (s *Store) ListIssued(ctx context.Context) ([]Issued, error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	got, err := s.client.Get(bounded, prefixIssued, clientv3.WithPrefix())
	if err != nil {
		return nil, s.failed(ctx, "read the certificates in use", err)
	}
	var all []Issued
	for _, kv := range got.Kvs {
		record := new(curatorv1.IssuedCertificate)
		issued, ok := issuedAt(string(kv.Key))
		if !ok || proto.Unmarshal(kv.Value, record) != nil {
			continue
		}
		issued.Certificate = record.GetCertificate()
		all = append(all, issued)
	}
	return all, nil
}
