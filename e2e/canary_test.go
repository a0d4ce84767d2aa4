package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// canary is something that must not come out where it went in.
type canary struct {
	name string
	// forms are the ways in which it may be written down.
	forms map[string][]byte
	// home is a file in which it rightly is, so that the test knows that it would find it; empty: it is in none as it is.
	home string
}

// word is a canary that is a text. No redactor knows it by its form: it is one long word without digits.
func word(name, text string) canary {
	return canary{name: name, forms: map[string][]byte{"text": []byte(text), "upper case": bytes.ToUpper([]byte(text))}}
}

func keyCanary(t *testing.T, name, home string, key ed25519.PrivateKey) canary {
	return canary{name: name, forms: forms(t, key), home: home}
}

// place is something that others get to see.
type place struct {
	name    string
	content []byte
}

// leaks returns where the canaries are.
func leaks(places []place, canaries []canary) []string {
	var found []string
	for _, p := range places {
		for _, c := range canaries {
			for _, form := range slices.Sorted(maps.Keys(c.forms)) {
				if i := bytes.Index(p.content, c.forms[form]); i >= 0 {
					found = append(found, fmt.Sprintf("%s: the %s, as %s: …%q…", p.name, c.name, form, p.content[max(0, i-80):min(len(p.content), i+80)]))
				}
			}
		}
	}
	return found
}

// TestCanaries plants a secret of its own at every place where one may get in, does what operators do, and looks at everything that comes out.
//
// A published value and what a role of somebody else writes to its standard error are no such places: to be seen is what they are for.
func TestCanaries(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		// The shell that starts the node.
		environment := word("environment", "canaryfromtheshellsenvironment")
		up := c.Run(t, "/bin/sh", "-c", "SECRET_OF_THE_SHELL="+string(environment.forms["text"])+" exec "+suite.programs.Reeve()+" dev up --detach --dir "+c.Directory)
		if up.Code != 0 {
			t.Fatal(up)
		}
		node := c.Status(t).Node.ID
		canaries := append(people(t, c), environment)
		canaries = append(canaries, configurations(t, c, node)...)
		canaries = append(canaries, keysOfTheNode(t, c)...)
		// What is written down when things go wrong, too.
		c.Kill(t, c.Status(t).Role("curator").PID)
		c.Kill(t, c.Core(t).PID)
		c.Up(t)
		roles := append([]string{"picky"}, devcluster.DefaultRoles...)
		c.AwaitUp(t, patience, roles...)

		places := everyPlace(t, c, node)
		for _, leak := range leaks(places, canaries) {
			t.Error(leak)
		}
		wouldBeFound(t, places, canaries)
		isFound(t, c, node)
	})
}

// people makes keys and sessions of people, as the owner and an operator do.
func people(t *testing.T, c *devcluster.Cluster) []canary {
	t.Helper()
	addOperator(t, c, "alice", "operator")
	reeve(t, c, exitOK, "login", "--name", "lab", "--dir", c.Directory)
	reeve(t, c, exitRefused, "plugin", "add", "--approve", suite.programs.Lighthouse(), "--context", "alice")
	var canaries []canary
	for name, file := range map[string]string{"owner key": c.Path("owner.key"), "operator's key": filepath.Join(c.Home, "alice.key")} {
		canaries = append(canaries, keyCanary(t, name, file, devcluster.ReadKey(t, file)))
	}
	for _, name := range []string{"lab", "alice"} {
		file := filepath.Join(c.Home, "config", "reeve", "sessions", name+".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var session struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal(text, &session); err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode([]byte(session.Key))
		if block == nil {
			t.Fatal("the session has no key")
		}
		canaries = append(canaries, keyCanary(t, "key of the session "+name, file, ed25519.NewKeyFromSeed(block.Bytes[len(block.Bytes)-ed25519.SeedSize:])))
	}
	return canaries
}

// configurations gives secrets to roles, good ones and wrong ones, in every way in which a configuration can be given and refused.
func configurations(t *testing.T, c *devcluster.Cluster, node string) []canary {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "picky", nil))
	stdin, file := word("configuration on standard input", "canaryonthestandardinput"), word("configuration in a file", "canaryinaconfiguration")
	bySchema := word("value that the schema refuses", "CANARYTHATTHESCHEMAREFUSES")
	byRole := word("configuration that the role refuses", "canarythattherolerefuses")
	hosts, listen := word("path that hostsfile refuses", "/canary/that/../hostsfile-refuses"), word("address that the curator refuses", "canarythatthecuratorrefuses")
	text := func(of canary) string { return string(of.forms["text"]) }

	command := suite.programs.Reeve() + " node role add " + node + " picky --config - --dir " + c.Directory
	if result := c.Run(t, "/bin/sh", "-c", `echo '{"lamps":2,"token":"`+text(stdin)+`"}' | `+command); result.Code != 0 {
		t.Fatal(result)
	}
	set := func(code int, role, document string) {
		t.Helper()
		reeve(t, c, code, "node", "role", "add", node, role, "--config", configuration(t, c, document), "--dir", c.Directory)
	}
	set(exitRefused, "picky", `{"lamps":2,"token":"`+text(bySchema)+`"}`)
	set(exitRefused, "picky", `{"lamps":"`+text(bySchema)+`"}`)
	set(exitRefused, "picky", `{"lamps":2,"colours":["`+text(bySchema)+`"]}`)
	set(exitFailed, "picky", `{"lamps":1,"token":"`+text(byRole)+`"}`)
	set(exitRefused, "curator", `{"listen":"`+text(listen)+`"}`)
	set(exitFailed, "hostsfile", `{"path":"`+text(hosts)+`"}`)
	set(exitOK, "hostsfile", `{"path":`+quote(c.Path("hosts"))+`}`)
	set(exitOK, "picky", `{"lamps":2,"token":"`+text(file)+`"}`)
	return []canary{stdin, file, bySchema, byRole, hosts, listen}
}

// keysOfTheNode are the node's own, and those of the cluster's CA as they are in the store's file.
func keysOfTheNode(t *testing.T, c *devcluster.Cluster) []canary {
	t.Helper()
	sealed, _ := readSealed(t, c)
	canaries := []canary{keyCanary(t, "node key", "", sealed.NodeKey)}
	file := c.Path("data", "roles", "consensus", "etcd", "member", "snap", "db")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A PKCS #8 document of a P-256 key begins with these bytes, and the secret.
	header := []byte{
		0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
		0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20,
	}
	const secret = 32
	for rest := content; ; {
		i := bytes.Index(rest, header)
		if i < 0 || len(rest) < i+len(header)+secret {
			break
		}
		der := rest[i : i+len(header)+secret]
		canaries = append(canaries, canary{name: "key of the CA", forms: secretForms(der[len(header):], der), home: file})
		rest = rest[i+len(der):]
	}
	if len(canaries) < 2 {
		t.Error("the key of the CA is not in the store's file")
	}
	return canaries
}

// everyPlace collects what others get to see.
func everyPlace(t *testing.T, c *devcluster.Cluster, node string) []place {
	t.Helper()
	var places []place
	add := func(name string, content []byte) { places = append(places, place{name, content}) }
	files := []string{c.Path("reeved.log"), c.Path("reeved.yaml")}
	for _, pattern := range []string{"reeved.log.*", "data/logs/*", "data/events*", "data/failures/*"} {
		found, err := filepath.Glob(c.Path(pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && !slices.Contains(files[:2], file) {
			continue // another has taken its place meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		add(file, content)
	}
	for _, command := range [][]string{
		{"status"}, {"node", "list"}, {"plugin", "list"}, {"node", "role", "list", node}, {"describe", "node", node}, {"describe", "role", node, "picky"},
		{"describe", "role", node, "hostsfile"}, {"operator", "list"}, {"whoami"}, {"events"}, {"audit", "--limit", "0"}, {"node", "metrics", node},
		{"store", "status"}, {"doctor"}, {"logs", node, "curator"}, {"logs", node, "consensus"}, {"logs", node, "picky"},
	} {
		for _, format := range []string{"table", "json"} {
			result := c.MustReeve(t, append(slices.Clone(command), "-o", format)...)
			add("reeve "+strings.Join(command, " ")+" -o "+format, []byte(result.Stdout+result.Stderr))
		}
	}
	for _, command := range [][]string{{"context", "list"}, {"context", "show", "lab"}, {"context", "show", "alice"}} {
		result := reeve(t, c, exitOK, append(command, "-o", "json")...)
		add("reeve "+strings.Join(command, " "), []byte(result.Stdout))
	}
	for name, content := range bundleOf(t, c) {
		add("bundle: "+name, content)
	}
	processes := c.Processes(t)
	for _, process := range processes {
		add("arguments of "+process.String(), []byte(strings.Join(process.Arguments, "\x00")))
		add("environment of "+process.String(), []byte(strings.Join(process.Environment, "\x00")))
		if len(process.Environment) == 0 && process.UID == uint32(os.Geteuid()) {
			// One that has just begun, or is about to end, has none.
			eventually.True(t, patience, "the environment of "+process.String(), func() (bool, string) {
				now, err := procfs.Read(process.PID)
				add("environment of "+process.String(), []byte(strings.Join(now.Environment, "\x00")))
				return err != nil || now.Start != process.Start || now.Ended() || len(now.Environment) > 0, now.String()
			})
		}
	}
	if len(processes) < 2+len(devcluster.DefaultRoles) || len(places) < 60 {
		t.Errorf("there are only %d places to look at, and the processes %v", len(places), processes)
	}
	return places
}

// bundleOf makes a support bundle and returns what is in it.
func bundleOf(t *testing.T, c *devcluster.Cluster) map[string][]byte {
	t.Helper()
	file := filepath.Join(c.Home, "bundle.tar.gz")
	// One that is there is never written over.
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "bundle", "--file", file)
	compressed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer compressed.Close()
	plain, err := gzip.NewReader(compressed)
	if err != nil {
		t.Fatal(err)
	}
	content := make(map[string][]byte)
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
	if len(content) < 8 {
		t.Errorf("the bundle has only %v", slices.Sorted(maps.Keys(content)))
	}
	return content
}

// wouldBeFound leaks every canary in every form at every place on purpose, and looks for those that are in files which rightly have them.
func wouldBeFound(t *testing.T, places []place, canaries []canary) {
	t.Helper()
	for _, c := range canaries {
		for form, text := range c.forms {
			for _, p := range places {
				leaked := place{p.name, slices.Concat(p.content, []byte(` key="`), text, []byte(`"`))}
				if len(leaks([]place{leaked}, []canary{c})) == 0 {
					t.Errorf("the %s, leaked as %s at %s, is not found", c.name, form, p.name)
				}
			}
		}
		if c.home == "" {
			continue
		}
		content, err := os.ReadFile(c.home)
		if err != nil {
			t.Fatal(err)
		}
		// A PEM block has its text in lines.
		joined := place{c.home, append(content, bytes.ReplaceAll(content, []byte("\\n"), nil)...)}
		if len(leaks([]place{joined}, []canary{c})) == 0 {
			t.Errorf("the %s is not found in %s, where it is", c.name, c.home)
		}
	}
}

// isFound has a role, and an operator, let slip what is then everywhere: this time the test has to find it.
func isFound(t *testing.T, c *devcluster.Cluster, node string) {
	t.Helper()
	const slip = "thecanarythatslipped"
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "fragile", map[string]string{"lastWords": slip}))
	reeve(t, c, exitNotFound, "node", "role", "add", node, slip, "--dir", c.Directory)
	reeve(t, c, exitOK, "node", "role", "add", node, "fragile", "--config", configuration(t, c, `{"end":"panic"}`), "--wait=none", "--dir", c.Directory)
	c.Await(t, patience, "the role has failed", func(s devcluster.Status) bool { return s.Role("fragile").LastFailure != nil })
	// What is seen at once is written down a moment later.
	eventually.True(t, patience, "it is in the logs and among the events", func() (bool, string) {
		events, err := filepath.Glob(c.Path("data", "events*"))
		if err != nil {
			t.Fatal(err)
		}
		var written []byte
		for _, file := range events {
			content, _ := os.ReadFile(file)
			written = append(written, content...)
		}
		log, _ := os.ReadFile(c.Path("data", "logs", "fragile.log"))
		return bytes.Contains(written, []byte(slip)) && bytes.Contains(log, []byte(slip)) && strings.Contains(c.Log(t), slip), "it is not"
	})
	// So is what the node tells the cluster of itself.
	eventually.True(t, patience, "it is in what the cluster knows of the node", func() (bool, string) {
		list := c.MustReeve(t, "node", "list", "-o", "json")
		return strings.Contains(list.Stdout, slip), list.String()
	})
	found := leaks(everyPlace(t, c, node), []canary{word("slip", slip)})
	for _, where := range []string{
		c.Path("reeved.log"), c.Path("data", "logs", "fragile.log"), c.Path("data", "events"), "reeve status", "reeve describe node", "reeve node list",
		"reeve events", "reeve audit", "bundle: reeve-bundle/cluster/audit.json", "bundle: reeve-bundle/nodes/" + node + "/status.json",
		"bundle: reeve-bundle/nodes/" + node + "/events.json", "bundle: reeve-bundle/nodes/" + node + "/logs/fragile",
	} {
		if !slices.ContainsFunc(found, func(leak string) bool { return strings.HasPrefix(leak, where) }) {
			t.Errorf("what was let slip is not found in %s; only: %s", where, strings.Join(found, "\n"))
		}
	}
}
