package plugin

// Users is how many have an executable of the store open.
func (s *Store) Users(digest string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[digest].users
}
