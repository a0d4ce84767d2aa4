package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestSecretsStayWhereTheyAre looks for the owner's key and the node's where they must not be: logs, environments and command lines.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		addLighthouse(t, c)
		byAddress(t, c, c.Status(t), 0)
		c.Kill(t, c.Core(t).PID)
		c.Up(t)
		configuration, _ := readSealed(t, c)
		secrets := map[string]ed25519.PrivateKey{
			"owner key": readKey(t, c),
			"node key":  configuration.NodeKey,
		}
		places := make(map[string][]byte)
		logs, err := filepath.Glob(c.Path("data", "logs", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range append(logs, c.Path("reeved.log"), c.Path("reeved.yaml")) {
			if places[file], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		for _, process := range c.Processes(t) {
			places["environment of "+process.String()] = []byte(strings.Join(process.Environment, "\x00"))
			places["arguments of "+process.String()] = []byte(strings.Join(process.Arguments, "\x00"))
		}
		if len(logs) < len(withLighthouse) || len(places) < 2+len(logs)+2*(1+len(withLighthouse)) {
			t.Fatalf("there are only %d places to look at", len(places))
		}
		for place, content := range places {
			for name, key := range secrets {
				for form, text := range forms(t, key) {
					if bytes.Contains(content, text) {
						t.Errorf("%s: the %s, as %s", place, name, form)
					}
				}
			}
		}
		// It would find them: here one is.
		file := c.Path("owner.key")
		if content, err := os.ReadFile(file); err != nil || !bytes.Contains(content, forms(t, secrets["owner key"])["PKCS #8 in base64"]) {
			t.Errorf("the test does not find the key in %s (%v)", file, err)
		}
		private(t, c)
	})
}

// forms are the ways in which a key may be written down.
func forms(t *testing.T, key ed25519.PrivateKey) map[string][]byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return secretForms(key.Seed(), der)
}

// secretForms are those of the secret bytes of a key, and of its PKCS #8 document.
func secretForms(seed, der []byte) map[string][]byte {
	// The end of a base64 text depends on what follows, its beginning does not.
	beginning := func(content []byte) []byte {
		return []byte(base64.RawStdEncoding.EncodeToString(content[:len(content)/3*3]))
	}
	return map[string][]byte{
		"bytes":             seed,
		"hex":               []byte(hex.EncodeToString(seed)),
		"capital hex":       []byte(strings.ToUpper(hex.EncodeToString(seed))),
		"base64":            beginning(seed),
		"base64 for URLs":   []byte(base64.RawURLEncoding.EncodeToString(seed[:30])),
		"PKCS #8 in base64": beginning(der),
	}
}

// private checks that files with secrets are not for everybody to read.
func private(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	for file, want := range map[string]fs.FileMode{
		c.Path("owner.key"):                    0o600,
		c.Path("system", "configuration.json"): 0o400,
		c.Path("system"):                       0o700 | fs.ModeDir,
	} {
		info, err := os.Stat(file)
		if err != nil || info.Mode() != want {
			t.Errorf("%s has mode %s (%v), want %s", file, info.Mode(), err, want)
		}
	}
	directories, err := filepath.Glob(c.Path("data", "roles", "*"))
	if err != nil || len(directories) < 2 {
		t.Fatalf("the roles' directories are %v (%v)", directories, err)
	}
	for _, directory := range directories {
		if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %s (%v), want 0700", directory, info.Mode(), err)
		}
	}
}
