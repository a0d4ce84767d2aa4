package spread_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/core/spread"
)

func TestOrder(t *testing.T) {
	addresses := []string{"a:1", "b:1", "c:1", "a:1"}
	first := make(map[string]int)
	for n := range 300 {
		who := fmt.Sprintf("reeve-%032x", n)
		order := spread.Order(who, addresses)
		if len(order) != 3 || !slices.Equal(order, spread.Order(who, []string{"c:1", "a:1", "b:1"})) {
			t.Fatalf("%s goes to %v", who, order)
		}
		first[order[0]]++
		// An address that is gone changes nothing of the order of the others.
		without := spread.Order(who, slices.DeleteFunc([]string{"a:1", "b:1", "c:1"}, func(a string) bool { return a == order[0] }))
		if !slices.Equal(without, order[1:]) {
			t.Errorf("%s goes to %v without %s, and to %v with it", who, without, order[0], order)
		}
	}
	for address, n := range first {
		if n < 75 || n > 125 {
			t.Errorf("%d of 300 go to %s first", n, address)
		}
	}
	if got := spread.Order("x", nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
