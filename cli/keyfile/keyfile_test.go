package keyfile_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCreateAndRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	public, err := keyfile.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	private, err := keyfile.Read(file, "the key", "--key")
	if err != nil || !public.Equal(private.Public()) {
		t.Errorf("%v", err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Create(file); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("a key that is there: %v", err)
	}
	// Nor is what a link leads to.
	link := filepath.Join(filepath.Dir(file), "link")
	if err := os.Symlink(filepath.Join(filepath.Dir(file), "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Create(link); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a link: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the key was written over: %v", err)
	}
	if _, err := keyfile.Create(filepath.Join(file, "key")); err == nil {
		t.Error("a file in a file")
	}
	if _, err := keyfile.Create(filepath.Join(filepath.Dir(file), "none", "key")); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no directory: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text string
		code fault.Code
	}{
		"text":   {"c2VjcmV0", fault.Usage},
		"broken": {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})), fault.Usage},
		"ecdsa":  {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), fault.Usage},
		"large":  {strings.Repeat("c2VjcmV0", 10_000), fault.Failed},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := keyfile.Read(file, "the owner key", "--owner-key")
		if fault.CodeOf(err) != test.code || strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := keyfile.Read(filepath.Join(dir, "none"), "the key", "--key"); fault.CodeOf(err) != fault.NotFound || !strings.Contains(err.Error(), "--key") {
		t.Error(err)
	}
}

func TestPublic(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, argument := range []string{
		keyfile.Text(public), base64.URLEncoding.EncodeToString(public), file("text", keyfile.Text(public)+"\n"),
		file("pem", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))),
	} {
		if key, err := keyfile.Public(argument); err != nil || !key.Equal(public) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	secret := base64.StdEncoding.EncodeToString(private)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		argument, want string
		code           fault.Code
	}{
		"a private key":        {secret, "neither a key nor the name of a file", fault.NotFound},
		"a file that is none":  {filepath.Join(dir, "none"), "neither a key nor the name of a file", fault.NotFound},
		"a long text":          {strings.Repeat("x", 5000), "neither a key nor the name of a file", fault.NotFound},
		"a private key's file": {file("private", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))), "must stay secret", fault.Usage},
		"something else":       {file("other", "hello"), "holds no public key", fault.Usage},
		"broken":               {file("broken", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der[:20]}))), "cannot be parsed", fault.Usage},
	} {
		_, err := keyfile.Public(test.argument)
		if fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
