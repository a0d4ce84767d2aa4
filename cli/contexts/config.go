package contexts

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

// Version is that of the format of config.json.
const Version = "reeve.contexts.v1"

// Config is what config.json holds.
type Config struct {
	// Version of the format; Encode sets it.
	Version string `json:"version"`
	// Current is the name of the context that is meant if nothing else is said; empty: none.
	Current string `json:"current,omitempty"`
	// Contexts are sorted by name.
	Contexts []Context `json:"contexts"`
}

// Context is how a cluster is reached.
type Context struct {
	// Name is written as a role's name.
	Name string `json:"name"`
	// CA holds the certificates of the cluster's CA, PEM. They name the cluster's trust domain, and are believed for as long as the context is there.
	CA string `json:"ca"`
	// Socket is the local socket of a node, absolute; empty: the context was made from elsewhere.
	Socket string `json:"socket,omitempty"`
	// Address is the host:port of a curator, as a person gave it; empty: none was given.
	Address string `json:"address,omitempty"`
	// Curators are the addresses that the cluster last said its curators have.
	Curators []string `json:"curators,omitempty"`
	// Nodes are those whose own API is known.
	Nodes []Node `json:"nodes,omitempty"`
	// KeyFile is the file with the key by which the person last logged in, absolute. Nothing of what is in it is kept.
	KeyFile string `json:"key_file,omitempty"`
}

// Node is where a node serves its own API.
type Node struct {
	ID      string `json:"id"`
	Address string `json:"address"`
}

// Find returns the context of a name; nil if there is none.
func (c *Config) Find(name string) *Context {
	for i := range c.Contexts {
		if c.Contexts[i].Name == name {
			return &c.Contexts[i]
		}
	}
	return nil
}

// Put adds a context, or replaces the one of its name.
func (c *Config) Put(context Context) {
	if found := c.Find(context.Name); found != nil {
		*found = context
		return
	}
	c.Contexts = append(c.Contexts, context)
	slices.SortFunc(c.Contexts, byName)
}

// Remove takes a context away. If it was the current one there is none.
func (c *Config) Remove(name string) {
	c.Contexts = slices.DeleteFunc(c.Contexts, func(context Context) bool { return context.Name == name })
	if c.Current == name {
		c.Current = ""
	}
}

func byName(a, b Context) int { return strings.Compare(a.Name, b.Name) }

// CACertificates returns the certificates of the cluster's CA.
func (c *Context) CACertificates() ([]*x509.Certificate, error) {
	return parseCertificates([]byte(c.CA))
}

// ClusterID returns the ID of the cluster that the CA is for.
func (c *Context) ClusterID() string {
	certificates, err := c.CACertificates()
	if err != nil {
		return ""
	}
	domain, err := TrustDomainOf(certificates)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(domain, identity.TrustDomain(""))
}

// TrustDomainOf returns the trust domain that the certificates of a cluster's CA name.
func TrustDomainOf(certificates []*x509.Certificate) (string, error) {
	domain := ""
	for _, certificate := range certificates {
		for _, uri := range certificate.URIs {
			if !isTrustDomain(uri) {
				continue
			}
			if domain != "" && domain != uri.Host {
				return "", fmt.Errorf("the CA certificates name two trust domains, %s and %s", domain, uri.Host)
			}
			domain = uri.Host
		}
	}
	if domain == "" {
		return "", errors.New("no CA certificate names a trust domain (a spiffe:// URI): it is not that of a cluster")
	}
	return domain, nil
}

func isTrustDomain(uri *url.URL) bool { return uri.Scheme == "spiffe" && uri.Host != "" }

// EncodeCertificates returns certificates as PEM.
func EncodeCertificates(certificates []*x509.Certificate) string {
	var text bytes.Buffer
	for _, certificate := range certificates {
		// A buffer takes everything.
		_ = pem.Encode(&text, &pem.Block{Type: certificateBlock, Bytes: certificate.Raw})
	}
	return text.String()
}

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// parseCertificates parses PEM that holds certificates, at least one, and nothing else.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil || block.Type != certificateBlock {
			return nil, errors.New("there is something that is no PEM block " + certificateBlock)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certificates, text = append(certificates, certificate), rest
	}
	if len(certificates) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return certificates, nil
}

// maxVersion is how much of a version is shown that is not known, in bytes: it may be anything.
const maxVersion = 64

// VersionError says that a file is in a format that this reeve does not know.
type VersionError struct {
	// Version is what the file says; empty: nothing.
	Version string
	// Known is the one that this reeve knows.
	Known string
}

// Error implements error.
func (e *VersionError) Error() string {
	if e.Version == "" {
		return "it names no version of its format"
	}
	return fmt.Sprintf("its format is %q, and this reeve knows %q", limits.Cut(e.Version, maxVersion), e.Known)
}

// Parse parses config.json and checks all of it. The error is a *VersionError if the file is in another format.
func Parse(text []byte) (*Config, error) {
	config := &Config{}
	if err := decode(text, Version, config); err != nil {
		return nil, err
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	return config, nil
}

// decode decodes a versioned JSON document, strictly.
func decode(text []byte, version string, into any) error {
	var head struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return errors.New("it is not a JSON document of the expected form")
	}
	if head.Version != version {
		return &VersionError{Version: head.Version, Known: version}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	// What is not known would be lost with the next change.
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errors.New("it is not a document of format " + version + ": " + safe(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// safe is what is wrong with a document, without a quotation of it.
func safe(err error) string {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return fmt.Sprintf("%s is a %s", wrongType.Field, wrongType.Value)
	}
	return "it has a field that is not known, or a value that is none"
}

// check checks a configuration and brings it into the form that Encode writes.
func (c *Config) check() error {
	seen := make(map[string]bool)
	for i := range c.Contexts {
		context := &c.Contexts[i]
		if !identity.ValidName(context.Name) {
			return fmt.Errorf("context %d has a name that is none: %q", i+1, context.Name)
		}
		if seen[context.Name] {
			return fmt.Errorf("there are two contexts %s", context.Name)
		}
		seen[context.Name] = true
		if err := context.check(); err != nil {
			return fmt.Errorf("context %s: %w", context.Name, err)
		}
	}
	if c.Current != "" && !seen[c.Current] {
		return fmt.Errorf("the current context, %q, is not there", c.Current)
	}
	slices.SortFunc(c.Contexts, byName)
	if c.Contexts == nil {
		c.Contexts = []Context{}
	}
	return nil
}

func (c *Context) check() error {
	certificates, err := c.CACertificates()
	if err != nil {
		return fmt.Errorf("the cluster's CA: %w", err)
	}
	if _, err := TrustDomainOf(certificates); err != nil {
		return err
	}
	for _, path := range []string{c.Socket, c.KeyFile} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not an absolute path", path)
		}
	}
	addresses := slices.Clone(c.Curators)
	if c.Address != "" {
		addresses = append(addresses, c.Address)
	}
	for _, node := range c.Nodes {
		if node.ID == "" {
			return errors.New("a node has no ID")
		}
		addresses = append(addresses, node.Address)
	}
	for _, address := range addresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return fmt.Errorf("%q is not an address with a port", address)
		}
	}
	if len(c.Curators) == 0 {
		c.Curators = nil
	}
	if len(c.Nodes) == 0 {
		c.Nodes = nil
	}
	return nil
}

// Encode returns the text of config.json.
func (c *Config) Encode() ([]byte, error) {
	encoded := *c
	encoded.Version = Version
	if err := encoded.check(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(encoded, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
