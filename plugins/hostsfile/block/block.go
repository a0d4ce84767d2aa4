package block

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

const (
	begin = "# BEGIN reeve"
	note  = "# Kept by the role hostsfile. Do not edit: changes up to the line END are lost."
	end   = "# END reeve"
	// domain is what a node ID is followed by in its long name.
	domain = ".node.reeve"
)

// Entry is a host: one address of a node.
type Entry struct {
	Address netip.Addr
	// Name is the node's ID.
	Name string
	// Alias is another name of the node; empty: it has none.
	Alias string
}

// String is the entry's line, without a newline: the address, the node's ID, its long name, and its alias.
func (e Entry) String() string {
	line := e.Address.String() + "\t" + e.Name + " " + e.Name + domain
	if e.Alias != "" {
		line += " " + e.Alias
	}
	return line
}

// Write returns the content with a block of the entries, in their order: where the first block was, or at the end. A newline ends the block, also
// where the content had none at its end.
func Write(content []byte, entries []Entry) []byte {
	lines, place := strip(split(content))
	if place < 0 {
		place = len(lines)
		if len(lines[place-1]) == 0 {
			place-- // the content ends with a newline, and so shall the block
		}
	}
	written := [][]byte{[]byte(begin), []byte(note)}
	for _, entry := range entries {
		written = append(written, []byte(entry.String()))
	}
	written = append(written, []byte(end))
	if place == len(lines) {
		written = append(written, nil)
	}
	return join(slices.Insert(lines, place, written...))
}

// Remove returns the content without a block.
func Remove(content []byte) []byte {
	lines, _ := strip(split(content))
	return join(lines)
}

func split(content []byte) [][]byte { return bytes.Split(content, []byte("\n")) }

func join(lines [][]byte) []byte { return bytes.Join(lines, []byte("\n")) }

// strip returns the lines that are not a block's, of which there is always one, and the place among them where the first block was; -1 if there
// was none.
func strip(lines [][]byte) (kept [][]byte, place int) {
	place = -1
	for n := 0; n < len(lines); n++ {
		switch {
		case is(lines[n], begin):
			if place < 0 {
				place = len(kept)
			}
			last := closing(lines, n)
			for n++; n <= last; n++ {
				if !ours(lines[n]) {
					kept = append(kept, lines[n])
				}
			}
			n--
		case is(lines[n], end):
			// It belongs to no block: its beginning was lost.
		default:
			kept = append(kept, lines[n])
		}
	}
	if len(kept) == 0 {
		// The content was a block and nothing else, not even a last newline.
		return [][]byte{{}}, place
	}
	return kept, place
}

// closing returns the last line of the block that begins at a line: its end marker, or if that was lost, the last of the lines directly after
// the beginning that are the block's.
func closing(lines [][]byte, first int) int {
	for n := first + 1; n < len(lines) && !is(lines[n], begin); n++ {
		if is(lines[n], end) {
			return n
		}
	}
	last := first
	for last+1 < len(lines) && ours(lines[last+1]) {
		last++
	}
	return last
}

// ours reports whether a line within a block is the block's.
func ours(line []byte) bool {
	if is(line, note) || is(line, end) {
		return true
	}
	address, names, found := strings.Cut(text(line), "\t")
	if !found {
		return false
	}
	parts := strings.Split(names, " ")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] != parts[0]+domain || parts[len(parts)-1] == "" || strings.ContainsAny(names, "\t#") {
		return false
	}
	_, err := netip.ParseAddr(address)
	return err == nil
}

// is compares a line with one that the package writes. An editor may have given it another line ending.
func is(line []byte, written string) bool { return text(line) == written }

func text(line []byte) string { return strings.TrimSuffix(string(line), "\r") }
