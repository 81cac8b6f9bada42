"""Pure rules of OAuth."""
