package inorder

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Of yields what a map holds by its keys, the least first.
func Of[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}
