package configuration_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/sdk/role"
)

// bucket is a configuration of a bucket with other members than these.
func bucket(more string) string {
	base := `"endpoint":"https://s3.example.com","name":"reeve","credentialsFile":"/srv/key"`
	return `{"bucket":{` + base + more + `}}`
}

func TestConfiguration(t *testing.T) {
	for document, path := range map[string]string{
		``: "-", `{}`: "-", `{"directory":"/mnt/backup"}`: "-", `{"directory":"/mnt/backup","keep":0,"sameDisk":true}`: "-",
		bucket(``): "-", bucket(`,"prefix":"prod/","region":"eu-1","pathStyle":true,"caFile":"/srv/ca.pem"`): "-",
		`{"bucket":{"endpoint":"http://127.0.0.1:9000","name":"reeve","credentialsFile":"/srv/key"}}`: "-",
		`{"bucket":{"endpoint":"http://[::1]:9000","name":"reeve","credentialsFile":"/srv/key"}}`:     "-",
		`{"bucket":{"endpoint":"http://localhost","name":"reeve","credentialsFile":"/srv/key"}}`:      "-",

		`{"directory":"backup"}`: "/directory", `{"directory":"/mnt/"}`: "/directory", `{"directory":"/mnt/../etc"}`: "/directory", `{"directory":5}`: "/directory",
		`{"keep":-1}`: "/keep", `{"keep":1.5}`: "/keep", `{"path":"/mnt"}`: "/path", `{"bucket":{}}`: "/bucket/credentialsFile", `[]`: "",
		`{"bucket":{"endpoint":"http://s3.example.com","name":"reeve","credentialsFile":"/srv/key"}}`:               "/bucket/endpoint",
		`{"bucket":{"endpoint":"http://127.0.0.1.example.com","name":"reeve","credentialsFile":"/srv/key"}}`:        "/bucket/endpoint",
		`{"bucket":{"endpoint":"https://me:secret-word@s3.example.com","name":"reeve","credentialsFile":"/srv/k"}}`: "/bucket/endpoint",
		`{"bucket":{"endpoint":"https://s3.example.com/reeve","name":"reeve","credentialsFile":"/srv/key"}}`:        "/bucket/endpoint",
		`{"bucket":{"endpoint":"https://s3.example.com","name":"Reeve","credentialsFile":"/srv/key"}}`:              "/bucket/name",
		`{"bucket":{"endpoint":"http://localhost","name":"reeve","credentialsFile":"/srv/key","caFile":"/srv/ca"}}`: "/bucket/caFile",
		bucket(`,"prefix":"/prod"`): "/bucket/prefix", bucket(`,"prefix":"a/../b"`): "/bucket/prefix", bucket(`,"prefix":"a//b"`): "/bucket/prefix",
		bucket(`,"caFile":"ca.pem"`): "/bucket/caFile", bucket(`,"caFile":"/srv/./ca.pem"`): "/bucket/caFile", bucket(`,"secret":"secret-word"`): "/bucket/secret",
	} {
		err := configuration.Schema.Check([]byte(document))
		var problems *role.ConfigurationError
		switch {
		case path == "-":
			if err != nil {
				t.Errorf("%s: %v", document, err)
			}
			continue
		case !errors.As(err, &problems):
			t.Errorf("%s: %v, want a problem of %s", document, err, path)
			continue
		case strings.Contains(err.Error(), "secret-word"):
			t.Errorf("a secret is shown: %v", err)
		}
		if !slices.ContainsFunc(problems.Problems, func(one role.ConfigurationProblem) bool { return one.Path == path }) {
			t.Errorf("%s: %v, want a problem of %s", document, err, path)
		}
	}
}

func TestGrants(t *testing.T) {
	connect, write, read := role.GrantConnect(role.AnyPort), role.GrantWritePath("/mnt/backup"), role.GrantReadPath("/srv")
	for _, c := range []struct {
		document  string
		grants    []role.Grant
		directory string
		says      []string // none: it is enough
	}{
		{``, configuration.Grants(), "/mnt", nil},
		{``, []role.Grant{connect, write}, "/mnt/backup", nil},
		{`{"directory":"/mnt/backup/two"}`, []role.Grant{connect, write}, "/mnt/backup/two", nil},
		{bucket(``), []role.Grant{connect, read, write}, "", nil},
		{strings.ReplaceAll(bucket(``), "/srv/key", "/etc/reeve/key"), []role.Grant{connect}, "", nil},

		{``, []role.Grant{connect}, "", []string{"archive:write-path:path=DIRECTORY"}},
		{`{"directory":"/mnt/backup2"}`, []role.Grant{connect, write}, "", []string{"/directory", "archive:write-path:path=/mnt/backup2"}},
		{strings.ReplaceAll(bucket(`,"caFile":"/srv/reeve/ca.pem"`), "/srv/key", "/srv/reeve/it's/key"), []role.Grant{connect, read}, "", nil},
		{bucket(`,"caFile":"/opt/ca.pem"`), []role.Grant{connect, role.GrantWritePath("/opt"), read}, "", nil},
		{strings.ReplaceAll(bucket(``), "/srv/key", "/srv/it's/key"), []role.Grant{connect}, "", []string{"/bucket/credentialsFile", `archive:read-path:path='/srv/it'\''s'`}},
		{strings.ReplaceAll(bucket(``), "/srv/key", "/key"), []role.Grant{connect}, "", []string{"/bucket/credentialsFile", "put it into a directory"}},
		// A second grant would take the place of the first.
		{bucket(`,"caFile":"/opt/ca.pem"`), []role.Grant{connect, write}, "", []string{"/bucket/credentialsFile", "/bucket/caFile", "into one, such as /srv, and", "archive:read-path:path=/srv`"}},
		{bucket(`,"caFile":"/opt/ca.pem"`), []role.Grant{connect, read}, "", []string{"/bucket/caFile", "into one, such as /srv, and"}},
		{bucket(`,"caFile":"/srv/ca.pem"`), []role.Grant{connect}, "", []string{"/bucket/credentialsFile", "archive:read-path:path=/srv`", "/bucket/caFile"}},
		{``, []role.Grant{write, role.GrantConnect("443")}, "", []string{"archive:connect"}},
	} {
		got, err := configuration.Of([]byte(c.document), c.grants)
		if len(c.says) == 0 {
			if err != nil || got.Directory != c.directory {
				t.Errorf("%s: %+v, %v", c.document, got, err)
			}
			continue
		}
		for _, part := range c.says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s with %v: %v, want it to say %q", c.document, c.grants, err, part)
			}
		}
	}
}

// FuzzConfiguration holds that no document makes a configuration that is not what it should be.
func FuzzConfiguration(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"directory":"/mnt/backup","keep":3}`, bucket(`,"prefix":"prod/","pathStyle":true`), `{"bucket":null}`, `{"bucket":{"endpoint":"http://[::1]:1"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		got, err := configuration.Schema.Decode(document)
		if err != nil {
			return
		}
		if got.Keep < 0 || got.Directory != "" && (got.Directory[0] != '/' || strings.Contains(got.Directory+"/", "/../")) {
			t.Errorf("%q is taken for %+v", document, got)
		}
		if got.Bucket != nil && (got.Bucket.Endpoint == "" || got.Bucket.Name == "" || got.Bucket.CredentialsFile == "" || strings.Contains(got.Bucket.Endpoint, "@")) {
			t.Errorf("%q is taken for %+v", document, got.Bucket)
		}
	})
}
