package store

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"time"

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
	// Network is where it was asked for; empty: nobody did.
	Network string
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

// NoteIssued keeps a certificate in the place of the one that was issued before to the same role or node, so that there are never more of them than nodes and roles. It has
// an end of its own, and needs no lease for that: SweepIssued removes it. NoteIssued reports whether there was one that lives and was not asked for from
// elsewhere, which this one renews.
func (s *Store) NoteIssued(ctx context.Context, issued Issued) (renewed bool, err error) {
	value, err := encode(&curatorv1.IssuedCertificate{Certificate: issued.Certificate, Network: issued.Network})
	if err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	checkpoint.Before(steps.NoteIssued)
	put, err := s.client.Put(bounded, issued.key(), value, clientv3.WithPrevKV())
	if err != nil {
		return false, s.failed(ctx, "take note of a certificate", err)
	}
	checkpoint.After(steps.NoteIssued)
	return put.PrevKv != nil && !expired(put.PrevKv.Value, time.Now()) && !elsewhere(put.PrevKv.Value, issued.Network), nil
}

// expired reports whether the record of a certificate is of one that has expired. What cannot be read is none of which anybody knows that.
func expired(value []byte, now time.Time) bool {
	record := new(curatorv1.IssuedCertificate)
	if proto.Unmarshal(value, record) != nil {
		return false
	}
	leaf, err := x509.ParseCertificate(record.GetCertificate())
	return err == nil && !now.Before(leaf.NotAfter)
}

// elsewhere reports whether the record of a certificate says that it was asked for from another network.
func elsewhere(value []byte, network string) bool {
	record := new(curatorv1.IssuedCertificate)
	return proto.Unmarshal(value, record) == nil && record.GetNetwork() != "" && record.GetNetwork() != network
}

// SweepIssued removes the certificates that have expired, and returns how many there were. One that is issued meanwhile stays.
func (s *Store) SweepIssued(ctx context.Context, now time.Time) (swept int, err error) {
	for from, more := prefixIssued, true; more; {
		var n int
		if n, from, more, err = s.sweepIssued(ctx, now, from); err != nil {
			return swept, s.failed(ctx, "remove certificates that have expired", err)
		}
		swept += n
	}
	return swept, nil
}

// sweepIssued removes those that have expired of as many as one transaction takes, and returns where those behind them begin.
func (s *Store) sweepIssued(ctx context.Context, now time.Time, from string) (swept int, next string, more bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	got, err := s.client.Get(bounded, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefixIssued)), clientv3.WithLimit(maxOperations))
	if err != nil {
		return 0, "", false, err
	}
	var same []clientv3.Cmp
	var writes transaction
	for _, kv := range got.Kvs {
		key := string(kv.Key)
		next = key + "\x00"
		if expired(kv.Value, now) {
			same = append(same, clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision))
			writes.delete(key)
		}
	}
	if len(same) == 0 {
		return 0, next, got.More, nil
	}
	err = checkpoint.Around(steps.SweepIssued, func() error {
		// If one of them was issued anew, all of them wait for the next sweep.
		response, err := s.client.Txn(bounded).If(same...).Then(writes.ops...).Commit()
		if err == nil && response.Succeeded {
			swept = len(same)
		}
		return err
	})
	return swept, next, got.More, err
}

// ListIssued returns up to limit of the certificates that were issued and are in use, and such as have expired lately, in no order that means anything, and by what those behind them are asked for; empty:
// there are none. One that cannot be read is left out.
func (s *Store) ListIssued(ctx context.Context, after string, limit int) (all []Issued, next string, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	from := prefixIssued + after
	if after != "" {
		from += "\x00"
	}
	got, err := s.client.Get(bounded, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefixIssued)), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, "", s.failed(ctx, "read the certificates in use", err)
	}
	if got.More {
		next = strings.TrimPrefix(string(got.Kvs[len(got.Kvs)-1].Key), prefixIssued)
	}
	for _, kv := range got.Kvs {
		record := new(curatorv1.IssuedCertificate)
		issued, ok := issuedAt(string(kv.Key))
		if !ok || proto.Unmarshal(kv.Value, record) != nil {
			continue
		}
		issued.Certificate = record.GetCertificate()
		all = append(all, issued)
	}
	return all, next, nil
}
