package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// The keys of the store. Each holds a list of which the first element signs and the others are good besides, so that one can be replaced by another. keyRotation says where that stands, and
// is not there while there is nothing to say.
const (
	keyServers         = "authorities/servers"
	keyClients         = "authorities/clients"
	keyAggregators     = "authorities/aggregators"
	keyServiceAccounts = "service-accounts"
	keyRotation        = "rotation"
)

// kinds are the keys of the store that hold lists, by what they sign.
func kinds() map[string]kubernetesv1.KeyKind {
	return map[string]kubernetesv1.KeyKind{
		keyServers:         kubernetesv1.KeyKind_KEY_KIND_SERVERS,
		keyClients:         kubernetesv1.KeyKind_KEY_KIND_CLIENTS,
		keyAggregators:     kubernetesv1.KeyKind_KEY_KIND_AGGREGATORS,
		keyServiceAccounts: kubernetesv1.KeyKind_KEY_KIND_SERVICE_ACCOUNTS,
	}
}

// store is what the authorities need of the store: a *consensus.Client has it.
type store interface {
	Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error)
	Txn(ctx context.Context) clientv3.Txn
	Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan
}

// stored is an element of what the store holds: a key, and for an authority its certificate. DER. An authority that does not sign any more has no key.
type stored struct {
	Key         []byte `json:"key,omitempty"`
	Certificate []byte `json:"certificate,omitempty"`
}

// authority signs certificates of one kind.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	// all are the certificates of the authorities of this kind that are good.
	all [][]byte
}

// authorities is everything that signs.
type authorities struct {
	servers, clients, aggregators *authority
	// serviceAccounts are the keys by which tokens of service accounts are signed: PKCS #8, the one that signs first.
	serviceAccounts [][]byte

	// phase is where the rotation stands, and since is when it began if it is under way.
	phase kubernetesv1.RotationPhase
	since time.Time
	// revision is the store's own of their last change.
	revision uint64
	// lists and versions are what the store holds, by its keys, and the revisions of each.
	lists    map[string][]stored
	versions map[string]int64
}

// open returns the authorities of the cluster, and makes them if there are none. Of several instances that do so at once, one makes them and all return those.
func open(ctx context.Context, kv store) (*authorities, error) {
	found, err := load(ctx, kv)
	if err != nil || found != nil {
		return found, err
	}
	made, err := makeAll(time.Now())
	if err != nil {
		return nil, err
	}
	var none []clientv3.Cmp
	var puts []clientv3.Op
	for key, list := range made {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		none = append(none, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		puts = append(puts, clientv3.OpPut(key, string(text)))
	}
	// Who made them is found out by reading: the answer to a transaction that succeeded may be lost.
	if _, err := kv.Txn(ctx).If(none...).Then(puts...).Commit(); err != nil {
		return nil, fmt.Errorf("store the new authorities: %w", err)
	}
	if found, err = load(ctx, kv); err == nil && found == nil {
		err = errors.New("the authorities that were stored are not there")
	}
	return found, err
}

// load reads the authorities; nil: there are none. A part of them is an error: they are made all at once, and to make the others anew would cut off whoever knows the former ones.
func load(ctx context.Context, kv store) (*authorities, error) {
	keys := slices.Sorted(maps.Keys(kinds()))
	var gets []clientv3.Op
	for _, key := range append(slices.Clone(keys), keyRotation) {
		gets = append(gets, clientv3.OpGet(key))
	}
	answer, err := kv.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	lists, versions, revision := make(map[string][]stored), make(map[string]int64), int64(0)
	held := func(n int, key string) []byte {
		found := answer.Responses[n].GetResponseRange().GetKvs()
		if len(found) == 0 {
			return nil
		}
		versions[key], revision = found[0].ModRevision, max(revision, found[0].ModRevision)
		return found[0].Value
	}
	for n, key := range keys {
		text := held(n, key)
		if text == nil {
			continue
		}
		var list []stored
		if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
			return nil, fmt.Errorf("the store holds something at %s that is no list of keys; it is left as it is: restore it from a backup", key)
		}
		lists[key] = list
	}
	switch len(lists) {
	case 0:
		return nil, nil
	case len(keys):
	default:
		return nil, fmt.Errorf("the store holds %d of the %d parts of the authorities; they are left as they are: restore it from a backup", len(lists), len(keys))
	}
	all, err := authoritiesOf(lists, held(len(keys), keyRotation))
	if err != nil {
		return nil, err
	}
	all.versions, all.revision = versions, uint64(revision)
	return all, nil
}

// authoritiesOf makes the authorities of what the store holds. It refuses what does not belong together.
func authoritiesOf(lists map[string][]stored, rotation []byte) (*authorities, error) {
	all := &authorities{lists: lists}
	var err error
	if all.phase, all.since, err = phaseOf(rotation); err != nil {
		return nil, err
	}
	for key, into := range map[string]**authority{keyServers: &all.servers, keyClients: &all.clients, keyAggregators: &all.aggregators} {
		if *into, err = authorityOf(lists[key]); err != nil {
			return nil, fmt.Errorf("the authority at %s cannot be used: %w", key, err)
		}
	}
	for _, account := range lists[keyServiceAccounts] {
		if _, err := x509.ParsePKCS8PrivateKey(account.Key); err != nil {
			return nil, fmt.Errorf("a key at %s cannot be used: %w", keyServiceAccounts, err)
		}
		all.serviceAccounts = append(all.serviceAccounts, account.Key)
	}
	for key, list := range lists {
		if all.phase != kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY && len(list) < 2 {
			return nil, fmt.Errorf("the rotation is %s, and there is one key at %s: restore it from a backup", phaseName(all.phase), key)
		}
	}
	return all, nil
}

func authorityOf(list []stored) (*authority, error) {
	a := &authority{}
	for n, element := range list {
		certificate, err := x509.ParseCertificate(element.Certificate)
		if err != nil {
			return nil, err
		}
		a.all = append(a.all, element.Certificate)
		if n > 0 {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(element.Key)
		if err != nil {
			return nil, err
		}
		private, ok := key.(*ecdsa.PrivateKey)
		if public, same := certificate.PublicKey.(*ecdsa.PublicKey); !ok || !same || !public.Equal(private.Public()) {
			return nil, errors.New("key and certificate do not belong together")
		}
		a.key, a.certificate = private, certificate
	}
	return a, nil
}

// noEnd is when a certificate ends that has no end (RFC 5280, 4.1.2.5).
var noEnd = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// skew is how far certificates begin in the past: clocks differ.
const skew = 5 * time.Minute

// makeAll makes new authorities and keys, by their keys in the store.
func makeAll(now time.Time) (map[string][]stored, error) {
	made := make(map[string][]stored)
	for key, of := range map[string]struct {
		name  string
		usage x509.ExtKeyUsage
	}{
		keyServers:     {"kubernetes servers", x509.ExtKeyUsageServerAuth},
		keyClients:     {"kubernetes clients", x509.ExtKeyUsageClientAuth},
		keyAggregators: {"kubernetes aggregators", x509.ExtKeyUsageClientAuth},
	} {
		private, der, err := newKey()
		if err != nil {
			return nil, err
		}
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: of.name}, NotBefore: now.Add(-skew), NotAfter: noEnd,
			KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{of.usage}, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		}
		certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			return nil, fmt.Errorf("make the authority of %s: %w", of.name, err)
		}
		made[key] = []stored{{Key: der, Certificate: certificate}}
	}
	_, der, err := newKey()
	made[keyServiceAccounts] = []stored{{Key: der}}
	return made, err
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return key, der, err
}

func (a *authorities) trust() *kubernetesv1.Trust {
	return &kubernetesv1.Trust{Servers: a.servers.all, Clients: a.clients.all, Aggregators: a.aggregators.all, Revision: a.revision}
}

// leaf is what a certificate says.
type leaf struct {
	user      string
	groups    []string
	usage     x509.ExtKeyUsage
	names     []string
	addresses []net.IP
	ends      time.Time
}

// sign makes a certificate for the key of a request. Nothing else of the request gets into it.
func (a *authority) sign(request *x509.CertificateRequest, says leaf, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: says.user, Organization: says.groups}, NotBefore: now.Add(-skew), NotAfter: says.ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{says.usage}, BasicConstraintsValid: true,
		DNSNames: says.names, IPAddresses: says.addresses,
	}
	return x509.CreateCertificate(rand.Reader, template, a.certificate, request.PublicKey, a.key)
}

// requestOf reads a certificate request, and refuses what nobody should sign.
func requestOf(der []byte) (*x509.CertificateRequest, error) {
	request, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	if key, ok := request.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("its key is a %T: want ECDSA P-256", request.PublicKey)
	}
	return request, nil
}
