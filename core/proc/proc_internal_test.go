package proc

import "testing"

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) b) (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1\n"))
	f.Add([]byte(""))
	f.Add([]byte(")"))
	f.Add([]byte("1 (x) S"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if s, err := parseStat(content); err == nil && s.state == 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	s, err := parseStat([]byte("42 (a) b) (c) S 1 43 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1\n"))
	if err != nil || s != (Stat{state: 'S', PGRP: 43, Start: 777}) {
		t.Errorf("%+v, %v", s, err)
	}
}
