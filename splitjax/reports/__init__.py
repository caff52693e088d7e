"""Reports: results as tables and pages, with papers' numbers beside them."""
