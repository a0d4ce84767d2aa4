package e2e

import (
	"iter"
	"maps"
	"slices"
)

// inOrder goes through a map in the order of its keys, so that a test takes the same way each time.
func inOrder[V any](all map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(key, all[key]) {
				return
			}
		}
	}
}
