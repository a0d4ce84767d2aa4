package bench

import (
	"context"
	"fmt"
)

// Pair is one pair of figures: A is Reeve, B the bare part.
type Pair struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// Side measures one figure.
type Side func(ctx context.Context) (float64, error)

// Interleave measures pairs: A first in the even ones, B first in the odd ones. warm pairs are measured before and thrown away. It ends with the first
// error.
func Interleave(ctx context.Context, warm, count int, a, b Side) ([]Pair, error) {
	pairs := make([]Pair, 0, count)
	for n := range warm + count {
		var pair Pair
		sides := []struct {
			name    string
			measure Side
			into    *float64
		}{{"Reeve", a, &pair.A}, {"the bare part", b, &pair.B}}
		if n%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		for _, side := range sides {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			var err error
			if *side.into, err = side.measure(ctx); err != nil {
				return nil, fmt.Errorf("pair %d of %d, %s: %w", n+1, warm+count, side.name, err)
			}
		}
		if n >= warm {
			pairs = append(pairs, pair)
		}
	}
	return pairs, nil
}
