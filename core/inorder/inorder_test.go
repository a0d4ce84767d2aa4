package inorder_test

import (
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
)

func TestOf(t *testing.T) {
	last := 0
	for key, value := range inorder.Of(map[int]int{3: 30, 1: 10, 4: 40, 2: 20}) {
		if key != last+1 || value != 10*key {
			t.Errorf("%d: %d after %d", key, value, last)
		}
		if last = key; last == 3 {
			break
		}
	}
	if last != 3 {
		t.Errorf("the last one is %d", last)
	}
}
