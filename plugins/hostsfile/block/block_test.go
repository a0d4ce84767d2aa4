package block_test

import (
	"bytes"
	"cmp"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reeveproject/reeve/plugins/hostsfile/block"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// The same histories are tried each time, unless REEVE_TEST_SEED or -rapid.seed says otherwise.
func init() { _ = flag.Set("rapid.seed", cmp.Or(os.Getenv("REEVE_TEST_SEED"), "1")) }

const (
	begin = "# BEGIN reeve"
	note  = "# Kept by the role hostsfile. Do not edit: changes up to the line END are lost."
	end   = "# END reeve"
	one   = "192.0.2.1\treeve-01 reeve-01.node.reeve"
	two   = "2001:db8::2\treeve-02 reeve-02.node.reeve"
)

func entries() []block.Entry {
	return []block.Entry{
		{Address: netip.MustParseAddr("192.0.2.1"), Name: "reeve-01"},
		{Address: netip.MustParseAddr("2001:db8::2"), Name: "reeve-02"},
	}
}

func lines(lines ...string) string { return strings.Join(lines, "\n") }

var written = lines(begin, note, one, two, end)

func TestWriteAndRemove(t *testing.T) {
	tests := []struct{ name, content, written, removed string }{
		{"an empty file", "", written + "\n", ""},
		{"an ordinary file", "127.0.0.1 localhost\n", "127.0.0.1 localhost\n" + written + "\n", "127.0.0.1 localhost\n"},
		{"no newline at the end", "127.0.0.1 localhost", "127.0.0.1 localhost\n" + written + "\n", "127.0.0.1 localhost"},
		{"empty lines at the end", "a\n\n\n", "a\n\n\n" + written + "\n", "a\n\n\n"},
		{"only a newline", "\n", "\n" + written + "\n", "\n"},
		{"carriage returns", "a\r\nb\r\n", "a\r\nb\r\n" + written + "\n", "a\r\nb\r\n"},
		{"a NUL alone", "\x00", "\x00\n" + written + "\n", "\x00"},
		{"a NUL and bytes that are no text", "a\x00b\n\xff\xfe\n", "a\x00b\n\xff\xfe\n" + written + "\n", "a\x00b\n\xff\xfe\n"},
		{"another block, in its place", lines("a", begin, note, "198.51.100.7\tgone gone.node.reeve", end, "b", ""), lines("a", written, "b", ""), "a\nb\n"},
		{"a block with carriage returns", lines("a", begin+"\r", note+"\r", one+"\r", end+"\r", "b", ""), lines("a", written, "b", ""), "a\nb\n"},
		{"a line of somebody else's in the block", lines("a", begin, note, one, "10.0.0.1 mine", two, end, "b", ""), lines("a", written, "10.0.0.1 mine", "b", ""), "a\n10.0.0.1 mine\nb\n"},
		{"no end", lines("a", begin, note, one, two, "b", one, ""), lines("a", written, "b", one, ""), lines("a", "b", one, "")},
		{"no end and nothing after it", lines("a", begin), lines("a", written, ""), "a"},
		{"a block without a newline", lines("a", written), lines("a", written, ""), "a"},
		{"a block with an alias", lines("a", begin, note, one+" web-1.example", end, "b", ""), lines("a", written, "b", ""), "a\nb\n"},
		{"somebody else's names after the block's", lines(begin, one+" x y", one+" # x", one+" ", end, "b", ""), lines(written, one+" x y", one+" # x", one+" ", "b", ""), lines(one+" x y", one+" # x", one+" ", "b", "")},
		{"no beginning", lines("a", one, end, "b", ""), lines("a", one, "b", written, ""), lines("a", one, "b", "")},
		{"two blocks", lines(begin, note, one, end, "a", begin, note, two, end, "b", ""), lines(written, "a", "b", ""), "a\nb\n"},
		{"a beginning in a block", lines("a", begin, one, "b", begin, two, end, "c", ""), lines("a", written, "b", "c", ""), "a\nb\nc\n"},
		{"an end that something was appended to", lines("a", begin, one, end+"10.0.0.1 b"), lines("a", written, end+"10.0.0.1 b"), lines("a", end+"10.0.0.1 b")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := string(block.Write([]byte(test.content), entries())); got != test.written {
				t.Errorf("written:\n%q, want\n%q", got, test.written)
			}
			if got := string(block.Remove([]byte(test.content))); got != test.removed {
				t.Errorf("removed:\n%q, want\n%q", got, test.removed)
			}
		})
	}
}

// anyLine is a line that is nobody's but the file's.
func anyLine() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "\r", " ", "\x00", "127.0.0.1 localhost", "127.0.0.1 localhost\r", "# BEGIN reeve ", " # END reeve", "#", "# END reeves",
			"10.0.0.1\ta b.node.reeve", "10.0.0.1\ta a.node.reeve # mine", "10.0.0.1 a a.node.reeve", "mine\ta a.node.reeve",
		}),
		rapid.StringMatching(`[^\n]{0,20}`).Filter(func(line string) bool {
			return !strings.HasPrefix(line, "#")
		}),
	)
}

// blockLine is a line that is a block's.
func blockLine() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{begin, note, end, one, two, begin + "\r", one + "\r", end + "\r"})
}

// Whatever the file holds, and however damaged a block in it is: the lines of others stay, in their order, and there is one block afterwards.
func TestLinesOfOthersStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all, others []string
		for range rapid.IntRange(0, 12).Draw(t, "lines") {
			if rapid.Bool().Draw(t, "of a block") {
				all = append(all, blockLine().Draw(t, "line"))
				continue
			}
			line := anyLine().Draw(t, "line")
			all, others = append(all, line), append(others, line)
		}
		got := block.Write([]byte(strings.Join(all, "\n")), entries())
		if count := bytes.Count(append(append([]byte("\n"), got...), '\n'), []byte("\n"+written+"\n")); count != 1 {
			t.Fatalf("%d blocks in %q", count, got)
		}
		// An entry that no beginning goes before is a line of others too, and so is the note; apart from those, nothing may be there more or less.
		rest := strings.Replace("\n"+string(got)+"\n", "\n"+written+"\n", "\n", 1)
		rest = strings.TrimSuffix(strings.TrimPrefix(rest, "\n"), "\n")
		stay, want := without(strings.Split(rest, "\n")), without(others)
		if !equal(stay, want) && !equal(stay, append(want, "")) && len(others) > 0 {
			t.Fatalf("lines %q became %q", want, stay)
		}
		if again := block.Write(got, entries()); !bytes.Equal(again, got) {
			t.Fatalf("written again: %q became %q", got, again)
		}
	})
}

// without drops what looks like a line of a block.
func without(lines []string) []string {
	var rest []string
	for _, line := range lines {
		switch strings.TrimSuffix(line, "\r") {
		case begin, note, end, one, two:
		default:
			rest = append(rest, line)
		}
	}
	return rest
}

func equal(a, b []string) bool {
	return len(a) == len(b) && strings.Join(a, "\n") == strings.Join(b, "\n")
}

// checkContent checks what holds for every content.
func checkContent(t interface {
	Helper()
	Fatalf(string, ...any)
}, content []byte) {
	t.Helper()
	with, without := block.Write(content, entries()), block.Remove(content)
	if got := block.Write(with, entries()); !bytes.Equal(got, with) {
		t.Fatalf("writing twice makes %q of %q", got, with)
	}
	ended := append(bytes.Clone(without), '\n')
	if got := block.Remove(with); !bytes.Equal(got, without) && !bytes.Equal(got, ended) {
		t.Fatalf("the block leaves %q in place of %q", got, without)
	}
	if appended := "10.0.0.9 db"; !bytes.Contains(append(append([]byte("\n"), with...), appended+"\n"...), []byte("\n"+end+"\n")) {
		t.Fatalf("what is appended to %q becomes a part of the block's last line", with)
	}
	if got := block.Remove(without); !bytes.Equal(got, without) {
		t.Fatalf("removing twice makes %q of %q", got, without)
	}
	if got := block.Remove(block.Write(with, nil)); !bytes.Equal(got, without) && !bytes.Equal(got, ended) {
		t.Fatalf("an empty block leaves %q in place of %q", got, without)
	}
	if !bytes.Contains(content, []byte("reeve")) && !bytes.Equal(without, content) {
		t.Fatalf("content without a block, %q, became %q", content, without)
	}
}

func TestWriteThenRemove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.OneOf(anyLine(), blockLine()), 0, 12).Draw(t, "lines")
		checkContent(t, []byte(strings.Join(all, "\n")))
	})
}

func FuzzRewrite(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "a", "a\n", "a\r\n", "\x00", written, written + "\n", lines("a", begin, "b"), lines("a", end, "b", begin), lines(begin, begin, end, one, end),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) { checkContent(t, content) })
}
