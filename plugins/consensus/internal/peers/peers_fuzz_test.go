package peers_test

import (
	"crypto/x509"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

func FuzzParseAuthority(f *testing.F) {
	f.Fuzz(func(t *testing.T, content []byte) {
		parsed, err := peers.ParseAuthority(content)
		if err != nil {
			return
		}
		if _, err := parsed.Marshal(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseAnnouncement(f *testing.F) {
	f.Add([]byte(peers.Announcement{Member: 0xab, Address: "192.0.2.1:7445"}.Marshal()))
	f.Add([]byte(`{"member":"0","address":":1"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		announced, err := peers.ParseAnnouncement(content)
		if err != nil {
			return
		}
		if again, err := peers.ParseAnnouncement([]byte(announced.Marshal())); err != nil || again != announced {
			t.Fatalf("%q was read as %+v, and again as %+v, %v", content, announced, again, err)
		}
	})
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"member":"ab","leader":"cd","applied":7}`))
	f.Fuzz(func(_ *testing.T, content []byte) { _, _ = peers.ParseState(content) })
}

func FuzzNameOf(f *testing.F) {
	f.Fuzz(func(t *testing.T, der []byte) {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		name, err := peers.NameOf(certificate)
		if err == nil && name.URI().String() != certificate.URIs[0].String() {
			t.Fatalf("%q was read as %+v", certificate.URIs[0], name)
		}
	})
}

// TestInstallRefuses holds what a member is given against its key, its name and the CA.
func TestInstallRefuses(t *testing.T) {
	files, other := peers.Files{Directory: t.TempDir()}, peers.Files{Directory: t.TempDir()}
	name := peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: 0xab}
	authority, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(by *peers.Authority, files peers.Files, name peers.Name) []byte {
		key, err := files.Key()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := by.Issue(key.Public(), name)
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	stranger := name
	stranger.Node = "reeve-2"
	for what, leaf := range map[string][]byte{
		"another key": issue(authority, other, name), "another name": issue(authority, files, stranger), "another CA": issue(foreign, files, name), "nothing": nil,
	} {
		if err := files.Install(leaf, authority.Certificates(), name); err == nil {
			t.Errorf("a certificate of %s was taken", what)
		}
	}
	if err := files.Install(issue(authority, files, name), authority.Certificates(), name); err != nil {
		t.Fatal(err)
	}
	loaded, err := files.Load()
	if err != nil || loaded.Name != name || !loaded.Follows(authority) || loaded.Follows(foreign) {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
}
