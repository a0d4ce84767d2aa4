package identity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/event"
)

// The files of the directory. Certificates are no secret, but nobody else needs to read or change them here.
const (
	caFile   = "ca.pem"
	svidFile = "svid.pem"
	fileMode = 0o400
)

// Config configures a Room.
type Config struct {
	Log hclog.Logger
	// Directory keeps the certificates.
	Directory string
	Key       ed25519.PrivateKey
	ClusterID string
	Owner     ed25519.PublicKey
	// Member says that the node is a member of its cluster and so must have the cluster's CA.
	Member bool
}

// Room is the node's identity.
type Room struct {
	config   Config
	identity event.Value[*Identity]
}

// New reads the saved certificates. A damaged SVID counts as none, since the cluster issues another for the node key. A damaged CA is an error:
// without it the node cannot tell its cluster from another.
func New(config Config) (*Room, error) {
	if err := os.MkdirAll(config.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	public, ok := config.Key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("identity: the node key is not an Ed25519 key")
	}
	id := &Identity{
		NodeID:      names.NodeID(public),
		Key:         config.Key,
		ClusterID:   config.ClusterID,
		TrustDomain: names.TrustDomain(config.ClusterID),
		Owner:       config.Owner,
	}
	ca, err := readChain(filepath.Join(config.Directory, caFile))
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		if id.CA, err = parseChain(ca); err != nil {
			return nil, fmt.Errorf("identity: %s is damaged, restore it: %w", filepath.Join(config.Directory, caFile), err)
		}
	}
	if config.Member && len(id.CA) == 0 {
		return nil, fmt.Errorf("identity: %s is missing, but the node is a member of cluster %s: restore the volume", filepath.Join(config.Directory, caFile), config.ClusterID)
	}
	svid, err := readChain(filepath.Join(config.Directory, svidFile))
	if err == nil && len(svid) > 0 {
		id.SVID, err = certificate(svid, config.Key)
	}
	if err != nil {
		config.Log.Warn("cannot use the SVID on the volume; asking the cluster for another", "error", err)
	}
	r := &Room{config: config}
	r.identity.Set(id)
	return r, nil
}

// Identity returns the published identity.
func (r *Room) Identity() *event.Value[*Identity] { return &r.identity }

// Run saves and publishes new certificates, those of the bootstrap and those that the cluster gives later, until the context ends. It logs and ignores invalid ones.
// What it cannot save, for instance on a full disk, it does not publish, and tries again.
func (r *Room) Run(ctx context.Context, bootstrapped, given *event.Value[Credentials]) error {
	first, later := bootstrapped.Watch(), given.Watch()
	var again <-chan time.Time
	var unkept Credentials // the newest of what was received since the last save
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-first.Changed():
			credentials, _ := first.Latest()
			unkept = unkept.with(credentials)
		case <-later.Changed():
			credentials, _ := later.Latest()
			unkept = unkept.with(credentials)
		case <-again:
		}
		again = nil
		if err := r.take(unkept); err != nil {
			r.config.Log.Error("cannot save the cluster's certificates; trying again", "error", err, "in", retry)
			again = time.After(retry)
			continue
		}
		unkept = Credentials{}
	}
}

// with overlays c with newer credentials.
func (c Credentials) with(newer Credentials) Credentials {
	if len(newer.CA) > 0 {
		c.CA = newer.CA
	}
	if len(newer.SVID) > 0 {
		c.SVID = newer.SVID
	}
	if len(newer.Owner) > 0 {
		c.Owner = newer.Owner
	}
	return c
}

// retry is the pause before another try to save.
const retry = 5 * time.Second

// take saves and publishes what is new in the credentials.
func (r *Room) take(credentials Credentials) error {
	current, _ := r.identity.Get()
	next := *current
	changed := false
	if len(credentials.CA) > 0 && !slices.EqualFunc(credentials.CA, current.CA, func(der []byte, c *x509.Certificate) bool { return bytes.Equal(der, c.Raw) }) {
		ca, err := parseChain(credentials.CA)
		if err != nil {
			r.config.Log.Error("the cluster sent an invalid CA; keeping the former one", "error", err)
			return nil
		}
		if err := r.keep(caFile, credentials.CA); err != nil {
			return err
		}
		next.CA, changed = ca, true
	}
	if len(credentials.SVID) > 0 && (current.SVID == nil || !slices.EqualFunc(credentials.SVID, current.SVID.Certificate, bytes.Equal)) {
		svid, err := certificate(credentials.SVID, r.config.Key)
		if err != nil {
			r.config.Log.Error("the cluster sent an invalid SVID; keeping the former one", "error", err)
			return nil
		}
		if err := r.keep(svidFile, credentials.SVID); err != nil {
			return err
		}
		next.SVID, changed = svid, true
		r.config.Log.Info("new SVID", "expires", svid.Leaf.NotAfter)
	}
	if len(credentials.Owner) == ed25519.PublicKeySize && !bytes.Equal(credentials.Owner, current.Owner) {
		next.Owner, changed = ed25519.PublicKey(credentials.Owner), true
	}
	if changed {
		r.identity.Set(&next)
	}
	return nil
}

func (r *Room) keep(name string, chain [][]byte) error {
	var content bytes.Buffer
	for _, der := range chain {
		if err := pem.Encode(&content, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return fmt.Errorf("identity: %s: %w", name, err)
		}
	}
	if err := storage.WriteFile(filepath.Join(r.config.Directory, name), content.Bytes(), fileMode); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}

// readChain returns the certificates of a PEM file, DER; none if the file does not exist.
func readChain(path string) ([][]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	var chain [][]byte
	for len(bytes.TrimSpace(content)) > 0 {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("identity: %s is damaged: it is not a list of PEM certificates; restore it", path)
		}
		chain = append(chain, block.Bytes)
	}
	return chain, nil
}

func parseChain(chain [][]byte) ([]*x509.Certificate, error) {
	certificates := make([]*x509.Certificate, 0, len(chain))
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, c)
	}
	return certificates, nil
}

// certificate returns the node's TLS certificate, and fails if it is for another key.
func certificate(chain [][]byte, key ed25519.PrivateKey) (*tls.Certificate, error) {
	certificates, err := parseChain(chain)
	if err != nil {
		return nil, err
	}
	public, ok := certificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the certificate is for another key than the node's")
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: certificates[0]}, nil
}
