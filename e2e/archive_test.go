package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// remedy is the command in the reason of a role that may not write to its directory, or not read its credentials.
var remedy = regexp.MustCompile("run `((?:chown|install -d -m 700 -o) [0-9]+ [^`]+)`")

// bucket is an S3 server of the test (plugins/archive/cmd/tests3).
type bucket struct {
	Endpoint, Bucket, Key, Secret string

	ask    io.WriteCloser
	answer *json.Decoder
}

// startBucket starts a server, which ends with the test.
func startBucket(t *testing.T) *bucket {
	t.Helper()
	program := filepath.Join(os.Getenv(build.Variable), "test", "tests3")
	if os.Getenv(build.Variable) == "" {
		program = filepath.Join(t.TempDir(), "tests3")
		if err := build.Go(t.Context(), suite.programs.Workspace, nil, "build", "-o", program, "./plugins/archive/cmd/tests3"); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(program)
	command.Stderr = t.Output()
	b := new(bucket)
	var err error
	if b.ask, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	answer, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start tests3, which `make test-programs` builds: %v", err)
	}
	t.Cleanup(func() {
		_ = b.ask.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("tests3: %v", err)
		}
	})
	b.answer = json.NewDecoder(answer)
	if err := b.answer.Decode(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// object reads an object; nil: there is none.
func (b *bucket) object(t *testing.T, name string) (content []byte) {
	t.Helper()
	if _, err := fmt.Fprintln(b.ask, name); err != nil {
		t.Fatal(err)
	}
	if err := b.answer.Decode(&content); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestArchive has a cluster copy its scheduled snapshot away from the node by the role archive, within its sandbox, into a directory and a bucket, and opens the copies without the cluster.
func TestArchive(t *testing.T) {
	t.Parallel()
	c, s3 := newCluster(t), startBucket(t)
	node := c.Up(t).Node.ID
	backup, secret, key := filepath.Join(c.Home, "backup"), filepath.Join(c.Home, "secret"), c.RecoveryKey()
	for _, path := range []string{backup, secret} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	credentials := filepath.Join(secret, "credentials")
	if err := os.WriteFile(credentials, []byte("[default]\naws_access_key_id="+s3.Key+"\naws_secret_access_key="+s3.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "policy", "set", "recovery-recipient="+c.NewRecoveryKey(t, key))
	c.MustReeve(t, "policy", "set", "snapshots=interval=10m,keep=3")
	c.MustReeve(t, "plugin", "add", "--approve", suite.programs.Plugin("archive"))
	// What the manifest asks for is not what is configured: the role does not start, and says which commands are missing.
	configure := func(more string) {
		document := fmt.Sprintf(`{"directory":%s%s,"bucket":{"endpoint":%q,"name":%q,"prefix":"prod/","region":"us-east-1","credentialsFile":%s}}`, quote(backup), more, s3.Endpoint, s3.Bucket, quote(credentials))
		c.MustReeve(t, "node", "role", "add", node, "archive", "--config", configuration(t, c, document), "--wait=false")
	}
	configure("")
	grants := []string{"archive:write-path:path=" + backup, "archive:read-path:path=" + secret}
	c.Await(t, patience, "archive without its grants", func(s devcluster.Status) bool {
		reason := s.Role("archive").Reason
		return strings.Contains(reason, "reeve plugin grant archive "+grants[0]) && strings.Contains(reason, "reeve plugin grant archive "+grants[1])
	})
	for _, grant := range grants {
		c.MustReeve(t, "plugin", "grant", "archive", grant)
	}
	c.Await(t, patience, "archive whose directory is on the node's disk", func(s devcluster.Status) bool {
		return strings.Contains(s.Role("archive").Reason, "no other file system is mounted at "+backup)
	})
	configure(`,"sameDisk":true`)
	if os.Geteuid() == 0 { // otherwise the role runs as the user whose files these are
		at := c.Await(t, patience, "archive that may use neither", func(s devcluster.Status) bool { return len(remedy.FindAllString(s.Role("archive").Reason, -1)) == 2 })
		for _, found := range remedy.FindAllStringSubmatch(at.Role("archive").Reason, -1) {
			command := strings.Fields(found[1])
			if output, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", command, err, output)
			}
		}
	}
	var copies []string
	c.Await(t, patience, "the copies of a snapshot", func(s devcluster.Status) bool {
		copies, _ = filepath.Glob(filepath.Join(backup, node, "*.snapshot"))
		return len(copies) == 1 && s.Role("archive").State == "Ready"
	})
	original, err := filepath.Glob(filepath.Join(c.NodeDirectory(1), "data", "roles", "curator", "snapshots", "*.snapshot"))
	if err != nil || len(original) != 1 || filepath.Base(original[0]) != filepath.Base(copies[0]) {
		t.Errorf("the curator has %v, and the copy is %v: %v", original, copies, err)
	}
	fetched := filepath.Join(c.Home, "fetched")
	if err := os.WriteFile(fetched, s3.object(t, "prod/"+node+"/"+filepath.Base(copies[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []string{copies[0], fetched} {
		if result := c.MustReeve(t, "store", "snapshot", "inspect", one, "--recovery-key", key); !strings.Contains(result.Stdout, "the database in it are complete") {
			t.Error(result)
		}
	}
	if metrics := c.MustReeve(t, "node", "metrics", node).Stdout; !strings.Contains(metrics, "archive_copies{") {
		t.Error("the metrics of the node do not have those of the role")
	}
	if log := c.MustReeve(t, "logs", node, "archive").Stdout; !strings.Contains(log, "copied a snapshot") || strings.Contains(log, s3.Secret) {
		t.Errorf("the log of the role has its secret, or not what it did: %s", log)
	}
	// The copies stay when the role goes.
	c.MustReeve(t, "node", "role", "remove", node, "archive")
	if _, err := os.Stat(copies[0]); err != nil {
		t.Error(err)
	}
	c.Down(t)
}
