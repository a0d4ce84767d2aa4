package logtail

import (
	"bytes"
	"hash/maphash"
)

// remembered is how many lines tell a place in a log. Lines usually have a time in them, and then one would do; a role that repeats itself without
// is told by how often.
const remembered = 64

// Place is how far a log was seen.
type Place struct {
	seed   maphash.Seed
	hashes []uint64
}

// NewPlace returns the place at which nothing was seen.
func NewPlace() *Place { return &Place{seed: maphash.MakeSeed()} }

// See takes note of a line that was seen.
func (p *Place) See(line []byte) {
	if len(p.hashes) == remembered {
		p.hashes = append(p.hashes[:0], p.hashes[1:]...)
	}
	p.hashes = append(p.hashes, p.hash(line))
}

func (p *Place) hash(line []byte) uint64 {
	return maphash.Bytes(p.seed, bytes.TrimSuffix(line, []byte{'\n'}))
}

// Kept is what a node keeps of a log, for finding a Place in it.
type Kept struct {
	place  *Place
	hashes []uint64
}

// NewKept begins with what is kept of the log in which the place is.
func (p *Place) NewKept() *Kept { return &Kept{place: p} }

// Add takes the next line of what is kept.
func (k *Kept) Add(line []byte) { k.hashes = append(k.hashes, k.place.hash(line)) }

// Seen returns how many of the lines were seen before: everything up to the last place that has the lines before it that were last seen, as far as there
// are so many. found is false if there is none, so that lines may have been lost; then, as when nothing was seen at all, none of them was.
func (k *Kept) Seen() (lines int, found bool) {
	last := k.place.hashes
	if len(last) == 0 {
		return 0, true
	}
	for end := len(k.hashes); end > 0; end-- {
		same := true
		for back := 1; same && back <= min(end, len(last)); back++ {
			same = k.hashes[end-back] == last[len(last)-back]
		}
		if same {
			return end, true
		}
	}
	return 0, false
}

// Same says whether a line is the one that was added at an index.
func (k *Kept) Same(index int, line []byte) bool { return k.hashes[index] == k.place.hash(line) }

// Len is how many lines were added.
func (k *Kept) Len() int { return len(k.hashes) }
