package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/bundle"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var created = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

const canary = "canary-3f9a1c"

func entry(name, content string) bundle.Entry {
	return bundle.Entry{Name: name, Collect: func(context.Context) ([]byte, error) { return []byte(content), nil }}
}

func fill(t *testing.T, order []int) *bundle.Bundle {
	t.Helper()
	b := bundle.New(created, redact.New(canary))
	entries := []bundle.Entry{
		entry("z.log", "a line with "+canary+"\n{\"token\":\"abc\"}\n"),
		entry("a/doc.json", `{"value":"`+canary+`","n":1.50,"html":"<b>"}`),
		{Name: "gone.json", Collect: func(context.Context) ([]byte, error) {
			return nil, fault.New(fault.Failed, "no answer to "+canary, "Do something.")
		}},
		entry("broken.json", "{ "+canary),
	}
	for _, i := range order {
		err := b.Add(t.Context(), entries[i])
		if (err != nil) != (entries[i].Name == "gone.json") {
			t.Fatal(err)
		}
	}
	return b
}

func TestBundle(t *testing.T) {
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	document, err := fill(t, []int{0, 1, 2, 3}).Write(name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %s, %v", info.Mode(), err)
	}
	names, contents := read(t, name)
	if got, want := strings.Join(names, " "), "reeve-bundle/bundle.json reeve-bundle/a/doc.json reeve-bundle/broken.json reeve-bundle/z.log"; got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
	for name, content := range contents {
		if strings.Contains(content, canary) || strings.Contains(content, "abc") {
			t.Errorf("%s has a secret: %s", name, content)
		}
	}
	if got := contents["reeve-bundle/a/doc.json"]; !strings.Contains(got, "\n  \"n\": 1.50") || !strings.Contains(got, "<b>") {
		t.Errorf("the document is %s", got)
	}
	var inside output.Bundle
	if err := json.Unmarshal([]byte(contents["reeve-bundle/bundle.json"]), &inside); err != nil {
		t.Fatal(err)
	}
	if len(document.Missing) != 1 || document.Missing[0].Reason != "no answer to [redacted]" || document.File != name || document.Redacted < 4 {
		t.Errorf("the document is %+v", document)
	}
	document.File = ""
	if got, want := asText(t, inside), asText(t, document); got != want {
		t.Errorf("bundle.json is %s, and was said to be %s", got, want)
	}
}

func asText(t *testing.T, document output.Bundle) string {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSameContentSameBytes holds that a bundle does not depend on the order in which it was collected, or on the time of writing.
func TestSameContentSameBytes(t *testing.T) {
	dir := t.TempDir()
	var written [][]byte
	for i, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} {
		name := filepath.Join(dir, string(rune('a'+i)))
		if _, err := fill(t, order).Write(name); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, content)
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the bundles differ")
	}
}

func TestLongText(t *testing.T) {
	b := bundle.New(created, redact.New())
	long := strings.Repeat("x", 99) + "\n"
	if err := b.Add(t.Context(), entry("long.log", strings.Repeat(long, bundle.Limit/100+10)+"the end\n")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	document, err := b.Write(name)
	if err != nil {
		t.Fatal(err)
	}
	_, contents := read(t, name)
	content := contents["reeve-bundle/long.log"]
	if !document.Contents[0].Truncated || len(content) > bundle.Limit || len(content) < bundle.Limit-100 ||
		!strings.HasPrefix(content, long) || !strings.HasSuffix(content, "the end\n") {
		t.Errorf("of %d bytes %d are kept, truncated: %t", bundle.Limit, len(content), document.Contents[0].Truncated)
	}
}

func TestNotWritten(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fault.Code{there: fault.Refused, filepath.Join(dir, "link"): fault.Refused, filepath.Join(dir, "none", "b"): fault.NotFound} {
		var problem *fault.Error
		if err := bundle.Free(name); fault.CodeOf(err) != want || !errors.As(err, &problem) || problem.Next == "" {
			t.Errorf("before, %s: %v", name, err)
		}
		_, err := fill(t, []int{0}).Write(name)
		if fault.CodeOf(err) != want || !errors.As(err, &problem) || problem.Next == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := bundle.Free(filepath.Join(dir, "new")); err != nil {
		t.Errorf("a new file: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if content, err := os.ReadFile(there); err != nil || string(content) != "mine" {
		t.Errorf("the file is %q, %v", content, err)
	}
}

func read(t *testing.T, name string) (names []string, contents map[string]string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	contents = make(map[string]string)
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Mode != 0o600 || !header.ModTime.Equal(created.Truncate(time.Second)) {
			t.Errorf("%s has mode %o and time %s", header.Name, header.Mode, header.ModTime)
		}
		names, contents[header.Name] = append(names, header.Name), string(content)
	}
}

// What a node calls its roles is part of names, and leads out of the directory of the bundle nowhere.
func TestNamesStayInside(t *testing.T) {
	b := bundle.New(created, redact.New())
	if err := b.Add(t.Context(), entry("nodes/n/logs/../../../../../etc/cron.d/x.log", "x")); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, err := b.Write(name); err != nil {
		t.Fatal(err)
	}
	names, _ := read(t, name)
	if got, want := strings.Join(names, " "), "reeve-bundle/bundle.json reeve-bundle/etc/cron.d/x.log"; got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
}
