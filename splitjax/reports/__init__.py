"""Reports: results as tables and pages, the papers' numbers beside them."""
